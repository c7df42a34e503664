// Package files reads records from files, pipes and directories. It implements ingest.Opener
// and ingest.Source.
//
//	opener, err := files.NewOpener(names, files.Options{Format: records.FormatAuto})
//	source, err := opener.Open(ctx, queue.Cursor())
//	batch, err := source.Next(ctx)
//
// The inputs are read one after the other. The records of a file are not parsed: they are
// documents without id, except those of a directory, where each file is a document with its
// relative path as id: of any content (Directories), or JSON that may be compressed (JSONFiles).
//
// # Cursor
//
// A cursor names the file, by path and inode, and the place in it. It contains checksums of the
// beginning of the file and of the last record, so that a file that was replaced or changed
// before the place is an error. Lines of an uncompressed file continue at their offset; tables,
// arrays and compressed files are read again up to the place. Pipes have no cursor.
//
// # Limits
//
// A record has at most MaxRecordBytes. A batch has 256 KiB, or one record.
package files
