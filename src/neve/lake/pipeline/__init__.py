"""Topics into Iceberg tables: what a pipeline is told, how it runs, how it stands."""
