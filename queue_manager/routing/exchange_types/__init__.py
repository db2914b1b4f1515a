"""What exchanges of each type do with their bindings: one strategy each, behind `base.Matcher`."""
