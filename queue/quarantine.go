package queue

// QuarantineSuffix ends the name of a segment's file that the server of a copy has
// quarantined because of damage, so that it is copied again. Such a file is not part of
// the queue, but its undamaged documents are served until the new copy arrives.
const QuarantineSuffix = ".bad"
