"""The EventMesh protocol: sessions, subscriptions, CloudEvents, acknowledgements, bridges."""
