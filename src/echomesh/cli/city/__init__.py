"""The main demonstration: a small city publishes, pipelines on Spark archive, count and warn, and both are killed.

`events` is the city, `traffic` publishes what happens there, `driver` is the process with Spark, `ledger` counts
afterwards with readers that are not ours, `chart` draws, and `play` puts it on the stage.
"""
