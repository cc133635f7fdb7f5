"""Task drivers: how processes, containers and virtual machines are started, watched and stopped."""
