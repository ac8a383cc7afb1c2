"""Ingest: reads data files into a store, in bounded memory, all or nothing."""
