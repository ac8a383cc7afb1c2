"""Models for and from other systems: LIBSVM's text format, ONNX."""
