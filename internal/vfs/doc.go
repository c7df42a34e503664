// Package vfs is the file system as the storage engine sees it.
package vfs
