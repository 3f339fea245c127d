// Package content names bytes: what a content id is and how it is computed. It stores nothing.
package content
