package updater

// sourcesHelp are the paragraphs about the sources of --from, for the help text.
const sourcesHelp = `file:// and s3:// read files and objects in the order of their names. In a
PATTERN "*" is any text without a slash and "**" any text; a slash at the end
means everything below. With --follow append also reads those that are added
behind the last one. One that is added or changed before it is not read: append
reads the new ones and then fails, or with --follow logs a warning. Write a file
under a name that begins with a dot, then rename it.

kafka:// reads a topic: the key of a message is the id, and a null value
deletes it. Messages of aborted transactions are not read. Append stops if
messages were deleted or lost before it read them, or the topic was created
again. Options of the URL, such as kafka://db:9092/jobs?tls=true&partitions=0-7:

  format=json           values are documents (default); or raw, debezium, maxwell
  id=document           the id is a field of the document, see --id-field
  table=DATABASE.TABLE  the table of maxwell events
  partitions=0-7,9      default all
  sasl=MECHANISM        plain, scram-sha-256 or scram-sha-512
  user, password-file   for sasl
  tls=true, ca=FILE, cert=FILE, key=FILE

postgres:// reads a table of PostgreSQL 13 or later, then its changes, through a
replication slot; wal_level must be logical. A document has the columns of a
row, and the primary key as id: several columns are joined by commas, with a
backslash before each comma and backslash of a value. Append stops if changes
were lost, and at TRUNCATE; another queue then reads the whole table. Drop the
slot of a queue that is not used any more: it keeps the log of the server.
Options besides those of libpq, such as sslmode=verify-full and passfile=FILE:

  table=SCHEMA.TABLE    the schema is public by default
  slot=NAME             default docstore_TABLE; each queue needs another one
  publication=NAME      default that of the slot; made at the first start
  query=SELECT...       read rows instead, without changes
  key=COLUMN,...        the id of a query's rows, in whose order they are read;
                        the next append reads only rows behind the last key

nats:// reads a stream of JetStream: the id is the part of the subject that
the wildcards of subject= match. A message with the header KV-Operation DEL or
PURGE deletes it, as in a key-value bucket, the stream KV_NAME. Append stops if
messages were discarded before it read them, the stream was created again, or an
older copy of it was restored. A bucket with a TTL needs a TTL of markers.
Options of the URL, such as nats://n1:4222/JOBS?subject=jobs.*&format=raw:

  subject=SUBJECT   read only this one, with wildcards; default all
  id=subject        default; or header:NAME, or document (see --id-field)
  format=json       messages are documents (default); or raw
  user, password-file, or creds=FILE
  tls=true, ca=FILE, cert=FILE, key=FILE

`
