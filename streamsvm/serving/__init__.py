"""A model over HTTP: predictions of any, and learning of those that `streamsvm stream` writes."""
