// A shared object that loads and is no backend: it exports none of the entry points.
int NotABackend(void) {
  return 0;
}
