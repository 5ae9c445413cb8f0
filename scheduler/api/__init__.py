"""REST API of plans and of the control loop."""
