//! Runs futures on one thread: the program of a victim has a task for each peer, and peers are many.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

enum Message {
    New(Task),
    Wake(u64),
}

/// Starts tasks.
#[derive(Clone)]
pub(crate) struct Spawner(Sender<Message>);

impl Spawner {
    /// Starts a task. Nothing happens if the executor has ended.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _ = self.0.send(Message::New(Box::pin(task)));
    }
}

struct TaskWaker {
    id: u64,
    sender: Sender<Message>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let _ = self.sender.send(Message::Wake(self.id));
    }
}

/// Runs tasks until all of them and all spawners are gone.
pub(crate) struct Executor {
    messages: Receiver<Message>,
    sender: Sender<Message>,
    tasks: HashMap<u64, Task>,
    started: u64,
}

impl Executor {
    pub(crate) fn new() -> (Self, Spawner) {
        let (sender, messages) = channel();
        let spawner = Spawner(sender.clone());
        (Self { messages, sender, tasks: HashMap::new(), started: 0 }, spawner)
    }

    /// Runs tasks for ever.
    pub(crate) fn run(mut self) {
        while let Ok(message) = self.messages.recv() {
            let id = match message {
                Message::New(task) => {
                    self.started += 1;
                    self.tasks.insert(self.started, task);
                    self.started
                }
                Message::Wake(id) => id,
            };
            // A task that has ended may still be woken.
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            let waker = Waker::from(Arc::new(TaskWaker { id, sender: self.sender.clone() }));
            if task.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
                self.tasks.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn tasks_wait_for_each_other() {
        let (executor, spawner) = Executor::new();
        std::thread::spawn(move || executor.run());
        let (told, heard) = channel();
        let inner = spawner.clone();
        spawner.spawn(async move {
            let mut is_second = false;
            // Pending once, and woken by itself.
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut is_second, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            inner.spawn(async move { told.send(7).unwrap() });
        });
        assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok(7));
    }
}
