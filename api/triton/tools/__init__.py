"""`triton.tools`: descriptors of tensors that are made on the host, and number formats."""
