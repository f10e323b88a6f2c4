"""The worker's side of backend "python": one process runs one instance of one model."""
