"""Consumer groups: who is in them, what each member was given, and how far each group has read."""
