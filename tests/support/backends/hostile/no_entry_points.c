// A shared library that can be loaded but is no backend, because it exports no entry point.
int NotABackend(void) {
  return 0;
}
