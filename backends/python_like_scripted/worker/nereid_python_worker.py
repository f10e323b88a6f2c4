"""One worker of backend "python". Arguments: the inherited descriptors of the two sockets and the two shared memories, by how many
bytes the worker's own shared memory grows and how long it may get (0: without limit), and the descriptor that tells of the host's end, with which this process ends too."""
import fcntl
import os
import select
import signal
import sys
import _thread


def die_with_host(descriptor):
    """The host alone holds the other end; when it closes, the kernel kills this process and what it forked."""
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([descriptor], [], [], 0)[0]:
        os._exit(1)


def outlive_signals():
    """Whoever signals every process of a service (a service manager; Ctrl-C does not come here, as each worker has a process
    group of its own) leaves the end of the workers to the host, which lets models finalize. A handler, and not SIG_IGN, which programs
    that a model starts would inherit."""
    usual = {each: signal.signal(each, _leave_to_host) for each in (signal.SIGINT, signal.SIGTERM)}
    masks = {}  # of threads that fork: no signal reaches the new process before it ends by them as ever

    def block():
        masks[_thread.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, usual)

    def unblock():
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop(_thread.get_ident()))

    def restore():
        for each, handler in usual.items():
            if signal.getsignal(each) is _leave_to_host:
                signal.signal(each, handler)
        unblock()
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


def _leave_to_host(number, frame):
    pass


def main():
    asked, posted, to_worker, from_worker, growth, limit, life = map(int, sys.argv[1:8])
    sys.argv[:] = [""]  # as there
    for descriptor in (asked, posted, to_worker, from_worker, life):
        os.set_inheritable(descriptor, False)
    die_with_host(life)
    outlive_signals()
    sys.stdout.reconfigure(line_buffering=True)
    try:
        from nereid_worker import channel
        channel.open_channels(asked, posted, to_worker, from_worker, growth, limit)
    except ImportError as error:
        import marshal
        os.write(asked, marshal.dumps((1, f"interpreter '{sys.executable}': {error}"), 2))
        return
    from nereid_worker import runtime
    channel.answer((0, f"Python {sys.version}"))
    runtime.serve()


if __name__ == "__main__":  # processes that a model spawns run this file again, under another name
    main()
    sys.stdout.flush()
    os._exit(0)  # whatever threads a model left behind
