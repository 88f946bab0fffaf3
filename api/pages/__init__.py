"""The web interface: pages for people, rendered here, with no build step and nothing from another host.

A page is a module with a function that reads the store and returns `Content`; `routes.py` names them all.
"""
