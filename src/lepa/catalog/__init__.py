"""Services as seen through the API, as a snapshot."""
