package follow

// CheckpointIndexWith is CheckpointIndex with the function that copies an index.
var CheckpointIndexWith = checkpointIndex
