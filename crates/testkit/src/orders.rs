//! Dropping handles in every order.

use std::any::Any;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Returns the `number`th order of `count` things. Each number below the factorial of `count` gives
/// another one.
pub fn order(count: usize, mut number: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..count).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        order.push(left.remove(number % left.len()));
        number /= left.len() + 1;
    }
    order
}

/// Creates new handles for each of these orders, and drops them in that order. Returns the number
/// of orders.
///
/// # Panics
///
/// Panics if one order takes longer than `patience`: it hangs.
pub fn drop_in_orders(
    numbers: impl IntoIterator<Item = usize> + Send + 'static,
    patience: Duration,
    make: impl Fn() -> Vec<Box<dyn Any + Send>> + Send + 'static,
) -> usize {
    let (tell, told) = mpsc::channel();
    let worker = thread::spawn(move || {
        for number in numbers {
            let mut handles: Vec<_> = make().into_iter().map(Some).collect();
            let order = order(handles.len(), number);
            // A receiver that is gone has given up.
            let _ = tell.send(order.clone());
            for handle in order {
                drop(handles[handle].take());
            }
        }
    });
    let (mut last, mut count) = (Vec::new(), 0);
    loop {
        match told.recv_timeout(patience) {
            Ok(order) => (last, count) = (order, count + 1),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs when dropped in the order {last:?}"),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    worker.join().expect("the worker does not panic");
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    struct Noted(usize, Arc<Mutex<Vec<usize>>>);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn every_order_comes_once_and_is_kept() {
        let drops = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&drops);
        let make = move || {
            (0..4).map(|handle| Box::new(Noted(handle, Arc::clone(&noted))) as Box<dyn Any + Send>).collect()
        };
        assert_eq!(drop_in_orders(0..24, Duration::from_secs(20), make), 24);
        let drops = drops.lock().unwrap();
        let orders: BTreeSet<&[usize]> = drops.chunks(4).collect();
        assert_eq!(orders.len(), 24);
        assert_eq!(drops[..4], order(4, 0));
        assert_eq!(drops[4 * 23..], order(4, 23));
    }

    #[test]
    #[should_panic(expected = "hangs when dropped in the order [0]")]
    fn what_hangs_is_told() {
        struct Slow;
        impl Drop for Slow {
            fn drop(&mut self) {
                thread::sleep(Duration::from_millis(500));
            }
        }
        drop_in_orders(0..1, Duration::from_millis(20), || vec![Box::new(Slow)]);
    }
}
