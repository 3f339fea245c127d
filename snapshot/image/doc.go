// Package image is the tree image: a flat file that holds a checkpoint's inodes and names and is read in place.
package image
