"""The HTTP side of a replica: metrics, probes, the status API and the admin page."""
