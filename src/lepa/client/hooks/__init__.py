"""What happens around a task: directories, payloads, artifacts, templates, services. One hook a file."""
