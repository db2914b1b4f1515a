"""The client as the parts of its front-end see it: who it is, addresses, and the conditions of refusals."""
