package lsm

const childDir = "LSM_TEST_CHILD_DIR"

func child(string) {}
