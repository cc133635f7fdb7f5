"""Every call that servers, nodes and the HTTP edge make of one another: names, types, and the port they travel on."""
