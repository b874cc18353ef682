"""GPUs of this machine: the CUDA driver, and errors for its statuses."""
