"""The exchange types: one strategy each of using bindings, behind `base.Matcher`."""
