"""What this node is and has: one function a subject, one table of them."""
