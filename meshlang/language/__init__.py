"""Text -> Spec: values and places, patterns, the typed reader."""
