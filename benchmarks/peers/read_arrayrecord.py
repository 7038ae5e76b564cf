"""ArrayRecord: ``ArrayRecordDataSource``, with a record a group, as its documentation has it for random access.

It stores bytes alone, so a record is a MessagePack map. Photos do not compress, so it is told not to try.
"""

from collections.abc import Sequence

import msgpack
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter
from reading import Job, Loop, list_photos, read, serve_reads


def open_loop(job: Job) -> Loop:
    """Write one file, and read single records of it."""
    writer = ArrayRecordWriter(job.out, "group_size:1,uncompressed")
    for row, photo in enumerate(list_photos(job.data)):
        writer.write(msgpack.packb({"image": read(photo), "label": row}))
    writer.close()
    source = ArrayRecordDataSource(job.out)

    def loop(rows: Sequence[int]) -> tuple[bytes, int]:
        for row in rows:
            record = msgpack.unpackb(source[row])
        return record["image"], record["label"]

    return loop


if __name__ == "__main__":
    serve_reads(["array-record", "msgpack"], open_loop)
