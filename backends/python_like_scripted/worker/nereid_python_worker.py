"""The entry of a worker process of backend "python". Arguments: the model's name, by which ps shows whose process it is; the inherited descriptors of the command socket, the posted socket and the two
regions of shared memory; by how many bytes the worker's region grows and its largest size (0: without limit); and the read end of the lifetime
pipe, by which this process ends when the host does."""
import fcntl
import os
import select
import signal
import sys
import _thread


def exit_with_host(descriptor):
    """Only the host holds the other end. When it closes, the kernel kills this process and everything that it forked."""
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([descriptor], [], [], 0)[0]:
        os._exit(1)


def ignore_termination_signals():
    """Ignores SIGINT and SIGTERM, which a service manager may send to every process of a service. The host ends the workers, so that models can
    finalize. (Ctrl-C does not reach a worker, which has its own process group.) Uses a handler and not SIG_IGN, which programs that a model
    starts would inherit."""
    usual = {each: signal.signal(each, _ignore_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    masks = {}  # signal masks of threads that fork: signals are blocked until the forked process has the default handlers again

    def block():
        masks[_thread.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, usual)

    def unblock():
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop(_thread.get_ident()))

    def restore():
        for each, handler in usual.items():
            if signal.getsignal(each) is _ignore_signal:
                signal.signal(each, handler)
        unblock()
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


def _ignore_signal(number, frame):
    pass


def new_fork_listener():
    """Imports the module of the relay only when the model forks for the first time, because most models never do."""
    from nereid_worker.relay import ForkListener
    return ForkListener()


def name_process(model):
    """Names this process after its model in top and ps -e; the kernel keeps 15 bytes."""
    try:
        with open("/proc/self/comm", "wb") as name:
            name.write(model.encode(errors="replace")[:15])
    except OSError:  # no /proc
        pass


def remedy_of(error):
    if error.name != "numpy":
        return ""
    return f"; install it, with 'apt-get install python3-numpy' for Debian's interpreter or with '{sys.executable} -m pip install numpy'"


def main():
    name_process(sys.argv[1])
    command, posted, to_worker, from_worker, growth, limit, lifetime_fd = map(int, sys.argv[2:9])
    sys.argv[:] = [""]  # as in Triton
    for descriptor in (command, posted, to_worker, from_worker, lifetime_fd):
        os.set_inheritable(descriptor, False)
    exit_with_host(lifetime_fd)
    ignore_termination_signals()
    sys.stdout.reconfigure(line_buffering=True)
    try:
        from nereid_worker import channel
        channel.open_channels(command, posted, to_worker, from_worker, growth, limit, new_fork_listener)
    except ImportError as error:
        import marshal
        os.write(command, marshal.dumps((1, f"interpreter '{sys.executable}': {error}{remedy_of(error)}"), 2))
        return
    from nereid_worker import runtime
    channel.answer((0, f"Python {sys.version}"))
    runtime.serve()


if __name__ == "__main__":  # processes that multiprocessing spawns run this file again under another name
    main()
    sys.stdout.flush()
    os._exit(0)  # even if the model left threads running
