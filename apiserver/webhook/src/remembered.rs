//! What webhooks have said, for as long as it is believed.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Answers by the whole text of their questions, so that no two questions share one. What is forgotten is asked again.
pub struct Remembered<T> {
    /// How many are kept.
    most: usize,
    kept: Mutex<Kept<T>>,
}

struct Kept<T> {
    by_question: HashMap<String, (Instant, T)>,
    /// Oldest first; what was answered anew stands here once for each answer.
    order: VecDeque<(String, Instant)>,
}

impl<T: Clone> Remembered<T> {
    pub fn new(most: usize) -> Self {
        let kept = Kept { by_question: HashMap::new(), order: VecDeque::new() };
        Self { most, kept: Mutex::new(kept) }
    }

    pub fn get(&self, question: &str) -> Option<T> {
        let kept = self.kept.lock();
        let (until, answer) = kept.by_question.get(question)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    pub fn put(&self, question: &str, answer: T, time: Duration) {
        let until = Instant::now() + time;
        let mut kept = self.kept.lock();
        kept.by_question.insert(question.to_owned(), (until, answer));
        kept.order.push_back((question.to_owned(), until));
        while kept.order.len() > self.most {
            let Some((oldest, until)) = kept.order.pop_front() else { return };
            if kept.by_question.get(&oldest).is_some_and(|(newest, _)| *newest == until) {
                kept.by_question.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_grow_old() {
        let answers = Remembered::new(9);
        answers.put("a", 1, Duration::from_secs(5));
        tokio::time::advance(Duration::from_millis(4999)).await;
        assert_eq!(answers.get("a"), Some(1));
        assert_eq!(answers.get("b"), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(answers.get("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_go_first_and_an_answer_given_anew_stays() {
        let answers = Remembered::new(3);
        answers.put("again", 1, Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(1)).await;
        answers.put("again", 2, Duration::from_secs(5));
        answers.put("b", 3, Duration::from_secs(5));
        answers.put("c", 4, Duration::from_secs(5));
        assert_eq!(answers.get("again"), Some(2));
        answers.put("d", 5, Duration::from_secs(5));
        assert_eq!(answers.get("again"), None);
        assert_eq!(answers.kept.lock().by_question.len(), 3);
    }
}
