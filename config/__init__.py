"""Settings as data: the models, the loader, units, limits. Imported by all, imports none of ours."""
