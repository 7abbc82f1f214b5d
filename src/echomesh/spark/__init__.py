"""Topics as DataFrames, batch and streaming: `spark.readStream.format("echomesh")`.

In come options (`options`), out go Arrow record batches (`source`, `stream`). `reach` says how a log is reached;
`session` makes a tuned local Spark, with a Java of its own where the machine has none.
"""
