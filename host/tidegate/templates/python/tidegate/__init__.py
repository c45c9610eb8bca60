"""Write tidegate policies in Python: one module for each kind of policy, such as `tidegate.throttle`."""
