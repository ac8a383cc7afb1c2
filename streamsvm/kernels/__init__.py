"""Kernels: `table` has a row of each, `base` what they share, the other files a class of each."""
