"""Hot kernels, one idea a file; each equals a plain twin, which is its specification."""
