"""Ingress: requests and connections from outside to the instances of services, by what their tags say."""
