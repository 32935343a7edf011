"""The real code in a simulated world: faults, crashes, two leaders, and a checker that knows."""
