"""One file per family of projectors, named as `clip.projector_type` is."""
