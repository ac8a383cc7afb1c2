"""Ingest: data files in, a store out, in bounded memory and all or nothing."""
