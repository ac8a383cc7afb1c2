"""Hierarchically semi-separable (HSS) matrices: a kernel matrix whose far blocks have low rank, and its inverse. Rows
are in the order of a cluster tree everywhere in this package."""
