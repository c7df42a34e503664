package queue

// AsideSuffix ends the name of a segment's file that a server of a copy has set
// aside because of damage, so that it is copied again. Such a file is no part of
// the queue, but until the new copy has come its sound documents are still read.
const AsideSuffix = ".bad"
