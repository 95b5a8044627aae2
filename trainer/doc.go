// Package trainer runs the loop: publish weights, consume one step of
// rollouts, step.
//
//	            prompts of one step
//	   data ────────────────────────────► producer ──► instance 1 ─┐
//	                                      (B tasks)──► instance 2  │ sampling with
//	                                         ▲    ──► …            │ version t
//	  trainer                                └──── answers ────────┘
//	   1 publish version t to all instances          │ scored as they return
//	   2 ◄──────── queue of finished groups ◄────────┘
//	     forward, backward, while others are still being sampled
//	   3 the step's last group is in: one optimizer step, t+1
//
//	who         consumes           waits for               unblocked by
//	producer    prompts            a free instance         a response that ends
//	instances   requests           requests                the producer
//	trainer     finished groups    the next group          the producer
//	step t+1    the new weights    all groups of step t    the optimizer step
//
// It is Algorithm 1 of the Periodic Asynchrony paper. Because no weights change
// while a step is sampled, and a step ends only when its last group is
// trained, every group is on-policy; the trainer checks that on each one.
package trainer
