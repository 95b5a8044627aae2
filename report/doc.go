// Package report records a run's steps and spans and shows them: console, JSON
// lines, page, trace. The last two, and the address at which a run answers, have
// packages of their own.
//
// Everything it is told is names and numbers: it knows no trainer, no model and
// no configuration, and its parts work apart from one another.
package report
